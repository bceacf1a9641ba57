// Package e2e runs the real programs together: servers, workers, the command
// line, a database. It is all tests; nothing imports it.
package e2e
