// Package e2e contains end-to-end tests that run the real binaries against a real database.
package e2e
