// Package apiv1 is the JSON of /v1, word for word: requests and responses as
// they travel, shared by the server, the Go client and the command line. It
// knows no behaviour. Times are RFC 3339 in UTC, enumerations are snake_case,
// durations carry their unit in the name.
package apiv1
