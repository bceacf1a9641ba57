// Package architecture contains tests that enforce the rules of this repository: import layers, size
// limits and portability.
//
// It has tests only; nothing imports it. A new package is added to the list of layers before it is
// first imported. An exception to a rule is an entry in the list beside the rule, with its reason.
package architecture
