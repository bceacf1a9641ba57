package childproc

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// An Account is the user that a child runs as. The zero value is the user of this process.
type Account struct {
	Name     string
	UID, GID int
}

// IsOtherUser reports whether the account differs from the one that runs this process.
func (a Account) IsOtherUser() bool { return a.Name != "" }

// UnprivilegedAccount returns an account for a program that must not run as root: the current user
// unless that is root, otherwise the first existing one of username and "nobody". The error names
// the user to create.
func UnprivilegedAccount(program, username string) (Account, error) {
	if os.Geteuid() != 0 {
		return Account{}, nil
	}
	for _, name := range []string{username, "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			continue
		}
		return Account{Name: name, UID: uid, GID: gid}, nil
	}
	return Account{}, fmt.Errorf("%s must not run as root, and neither user %s nor user nobody exists: "+
		"create one (useradd --system %s), or run this program as an unprivileged user", program, username, username)
}
