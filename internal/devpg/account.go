package devpg

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"tasker.example/tasker/internal/childproc"
)

// chooseAccount returns the account that runs PostgreSQL, which refuses to run as root. For root,
// that is the owner of existing data, because PostgreSQL requires it, or the user that
// distributions create for PostgreSQL. Other users run it themselves.
func chooseAccount(data string) (childproc.Account, error) {
	if uid, gid, ok := findOwner(data); ok && os.Geteuid() == 0 {
		if uid == 0 {
			return childproc.Account{}, fmt.Errorf("%s is owned by root, but PostgreSQL does not run as root: "+
				"change its owner, for example: chown -R postgres %s", data, data)
		}
		return childproc.Account{Name: "uid " + strconv.Itoa(uid), UID: uid, GID: gid}, nil
	}
	return childproc.UnprivilegedAccount("PostgreSQL", "postgres")
}

// checkAccess returns an error if the account may not enter path or one of its parent folders. The
// kernel would report "permission denied" for the wrong file.
func checkAccess(a childproc.Account, path string) error {
	if !a.IsOtherUser() {
		return nil
	}
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		uid, gid, _ := findOwner(p)
		need := os.FileMode(0o001)
		switch {
		case uid == a.UID:
			need = 0o100
		case gid == a.GID:
			need = 0o010
		}
		if info.Mode()&need == 0 {
			return fmt.Errorf("PostgreSQL runs as user %s, who cannot access %s (mode %04o), so it cannot use %s: "+
				"choose another directory, or run this program as an "+
				"unprivileged user", a.Name, p, info.Mode().Perm(), path)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}
