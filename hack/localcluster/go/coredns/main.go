// Command coredns is CoreDNS with the plugins of our Corefile. The released one holds clients for every cloud too,
// which take longer to build than all the rest. Its Kubernetes client is of the version of the cluster.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/coremain"
)

func main() { coremain.Run() }
