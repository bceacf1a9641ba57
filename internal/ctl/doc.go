// Package ctl is tasker-ctl: the HTTP API for a person at a terminal, and for
// scripts.
//
// Each file holds the commands of one noun. Commands print what they did the way
// the documents show it, or, with -o json, the server's answer as it is. What
// came from a payload is cleaned before it reaches a terminal: no handler's
// error message can move the cursor.
//
// [Main] takes everything it needs as arguments, so that tests run it as it is.
package ctl
