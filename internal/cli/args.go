package cli

import (
	"os"
	"regexp"
	"strings"
	"unsafe"
)

// password matches the password in a URL such as postgres://user:password@host, and in a PostgreSQL
// keyword/value connection string.
var password = regexp.MustCompile(`://[^:/?#@]*:([^@]+)@|password=('[^']*'|[^\s&]+)`)

// TakeArgs returns the arguments of this process and overwrites the passwords in them, so that they
// do not appear in the process list. They remain visible until then, and in the history of the shell;
// environment variables do not.
func TakeArgs() []string {
	args := make([]string, len(os.Args))
	for i, a := range os.Args {
		args[i] = strings.Clone(a)
		for _, at := range password.FindAllStringSubmatchIndex(args[i], -1) {
			from, to := max(at[2], at[4]), max(at[3], at[5])
			overwriteArg(a[from:to])
		}
	}
	os.Args = args
	return args
}

// overwriteArg replaces the bytes of arg in place. Process arguments are in writable memory.
func overwriteArg(arg string) {
	b := unsafe.Slice(unsafe.StringData(arg), len(arg))
	for i := range b {
		b[i] = 'x'
	}
}
