// The development server of the Temporal CLI without the CLI around it: `benchserver PORT`, headless, in memory.
//
// Built inside a copy of the CLI's own module, whose package for this cannot be imported from elsewhere; the CLI itself
// needs a module that no registry has. The options are those of `temporal server start-dev --headless`.
package main

import (
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/google/uuid"
	"github.com/temporalio/cli/internal/devserver"
)

func main() {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	port, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil {
		logger.Error("usage: benchserver PORT", "error", err)
		os.Exit(2)
	}
	const address, cluster = "127.0.0.1", "active"
	server, err := devserver.Start(devserver.StartOptions{
		FrontendIP:             address,
		FrontendPort:           port,
		MetricsPort:            devserver.MustGetFreePort(address),
		Namespaces:             []string{"default"},
		ClusterID:              uuid.NewString(),
		MasterClusterName:      cluster,
		CurrentClusterName:     cluster,
		InitialFailoverVersion: 1,
		Logger:                 logger,
		LogLevel:               slog.LevelWarn,
		DynamicConfigValues: map[string]any{
			"system.forceSearchAttributesCacheRefreshOnRead": true,
			"system.forceNexusEndpointRefreshOnRead":         true,
			"frontend.persistenceMaxQPS":                     10000,
			"history.persistenceMaxQPS":                      45000,
		},
	})
	if err != nil {
		logger.Error("the server does not start", "error", err)
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	server.SuppressWarnings()
	server.Stop()
}
