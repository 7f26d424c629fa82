"""`python -m apportion` is the program `apportion`."""

from apportion.cli.main import main

if __name__ == "__main__":
    main()
