"""The command `hack/cluster`: reads its arguments and calls the provider that fits this machine."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from localcluster import build, deps
from localcluster.console import Failure, say
from localcluster.providers import choose
from localcluster.settings import Settings

DESCRIPTION = """The Kubernetes cluster that the demo and the tests run on: the one that KUBECONFIG names; else kind,
where a container engine answers; else one of its own on this Linux machine (needs root, and Go once to build it)."""
EPILOG = """Exit codes: 0 done; 1 failed; 3 this machine cannot do it, the reason is on stderr.
Environment: PERDURE_CACHE (where everything is kept), PERDURE_CLUSTER_PROVIDER (kind or local),
PERDURE_CLUSTER_SUBNET, PERDURE_CLUSTER_SERVICES, PERDURE_CLUSTER_LINK (addresses and device of the local one)."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # Debian keeps iptables, runc and others where the PATH of a plain root shell does not look.
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    try:
        return _run(options)
    except Failure as failure:
        say(f"error: {failure}")
        return failure.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/cluster", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--kubeconfig", help="use this cluster, as if KUBECONFIG named it")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("deps", help="install what is missing with apt (needs root)")
    command = verbs.add_parser("build", help="build the local cluster's programs; `up` does so by itself")
    command.add_argument("--only", choices=("control-plane", "all"), default="all")
    verbs.add_parser("up", help="start the cluster, or see that it is up; prints `export KUBECONFIG=…` on stdout")
    verbs.add_parser("down", help="remove the cluster")
    verbs.add_parser("status", help="say how the cluster is; exit code 1 when it is not usable")
    command = verbs.add_parser("load-image", help="give images to the cluster")
    command.add_argument("archive", nargs="+", type=Path, help="a docker archive, as hack/images writes them")
    verbs.add_parser("kubeconfig", help="print the path of the cluster's kubeconfig")
    verbs.add_parser("provider", help="print where the cluster comes from on this machine, or why it cannot be had")
    command = verbs.add_parser("tool", help="print the path of a program (kubectl, helm, …), built if it has to be")
    command.add_argument("name")
    return parser


def _run(options: argparse.Namespace) -> int:
    settings = Settings.from_environment()
    match options.verb:
        case "deps":
            deps.install()
            return 0
        case "build":
            build.build(settings, build.EVERYTHING if options.only == "all" else build.CONTROL_PLANE)
            return 0
        case "tool":
            print(build.tool(settings, options.name))
            return 0
    provider = choose(settings, options.kubeconfig)
    match options.verb:
        case "up":
            provider.up()
            print(f"export KUBECONFIG={provider.kubeconfig}", flush=True)
        case "down":
            provider.down()
        case "status":
            return 0 if provider.status() else 1
        case "load-image":
            provider.load_image(options.archive)
        case "kubeconfig":
            print(provider.kubeconfig)
        case "provider":
            print(provider.name)
    return 0
