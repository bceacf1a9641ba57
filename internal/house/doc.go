// Package house holds the rules of the house that no compiler and no linter
// holds: which room stands on which floor and may therefore import which other,
// how long a file and how deep a function may be, and that nothing in the
// repository depends on the machine of whoever wrote it.
//
// It is all tests; nothing imports it. A new room is entered in the list of
// floors before its first import. A rule is broken only by an entry in the list
// of exceptions beside it, which says why.
package house
