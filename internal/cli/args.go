package cli

import (
	"os"
	"regexp"
	"strings"
	"unsafe"
)

// A password in a URL, such as postgres://user:password@host, or in the keywords of a
// connection to PostgreSQL.
var password = regexp.MustCompile(`://[^:/?#@]*:([^@]+)@|password=('[^']*'|[^\s&]+)`)

// TakeArgs returns the arguments of this process, and overwrites the passwords in them where
// the system keeps them: everybody on the machine can list the arguments of all processes. They can
// be seen until it does, and in the history of a shell; a variable of the environment cannot.
func TakeArgs() []string {
	args := make([]string, len(os.Args))
	for i, a := range os.Args {
		args[i] = strings.Clone(a)
		for _, at := range password.FindAllStringSubmatchIndex(args[i], -1) {
			from, to := max(at[2], at[4]), max(at[3], at[5])
			overwrite(a[from:to])
		}
	}
	os.Args = args
	return args
}

// The arguments of a process are no constants: Go leaves them where the system has put them.
func overwrite(arg string) {
	b := unsafe.Slice(unsafe.StringData(arg), len(arg))
	for i := range b {
		b[i] = 'x'
	}
}
