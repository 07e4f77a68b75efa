"""`python -m perdure.worker`: run a worker with settings from the environment."""

from perdure.worker.main import run_process

if __name__ == "__main__":
    run_process()
