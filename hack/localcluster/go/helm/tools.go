//go:build tools

// Package tools pins Helm: see the file of this name beside it, in kubernetes.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
