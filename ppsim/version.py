"""The version, written in one place."""

VERSION = "0.1.0"
