// Package client is the HTTP API of a Tasker server as Go methods, spelled in the
// types of package apiv1.
//
// What the server refuses comes back as a [tasker.Error] with the server's code,
// message and details, so errors.As and [tasker.CodeOf] work as they do inside
// the server. A server that cannot be reached is tasker.Unavailable.
//
// A request that may be sent twice is sent again, a few times, when the server
// cannot be reached or says that it cannot serve now. Any other is sent again
// only when it certainly never arrived.
//
// [WithToken] and [WithTokenFile] say who is calling, with an API key. A caller who is not
// known, or may not do something, learns it at once: Unauthorized, Forbidden.
//
// [Client.Backend] lets a worker of package worker run its steps over HTTP.
package client
