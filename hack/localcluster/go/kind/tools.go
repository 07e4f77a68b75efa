//go:build tools

// Package tools pins kind: see the file of this name beside it, in kubernetes.
package tools

import _ "sigs.k8s.io/kind"
