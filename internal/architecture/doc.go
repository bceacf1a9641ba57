// Package architecture tests the rules of this repository that no compiler and no linter
// checks: the layer of each package and therefore what it may import, how long a file and
// how deep a function may be, and that nothing depends on one machine.
//
// It has tests only; nothing imports it. A new package is added to the list of layers
// before it is first imported. An exception to a rule is an entry in the list beside the
// rule, with its reason.
package architecture
