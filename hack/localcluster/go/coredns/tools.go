//go:build tools

// Package tools pins CoreDNS: see the file of this name beside it, in kubernetes.
package tools

import _ "github.com/coredns/coredns"
