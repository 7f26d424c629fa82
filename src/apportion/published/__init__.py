"""Methods as the papers publish them, repaired where they were broken: to compare with, and to build on."""
