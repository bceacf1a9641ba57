package devpg

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// An account is the user that PostgreSQL runs as. The zero value is ourselves.
type account struct {
	name     string
	uid, gid int
}

// borrowed reports whether the account is another one than ours.
func (a account) borrowed() bool { return a.name != "" }

// unprivileged returns the account for a process that may not run as root:
// ourselves if we are not root; else the owner of the data, because PostgreSQL
// insists on owning them; else the user that distributions make for it.
func unprivileged(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if uid, gid, ok := ownerOf(data); ok {
		if uid == 0 {
			return account{}, fmt.Errorf("%s belongs to root, as whom PostgreSQL refuses to run: "+
				"give it to another user, for example: chown -R postgres %s", data, data)
		}
		return account{name: "uid " + strconv.Itoa(uid), uid: uid, gid: gid}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
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
		return account{name: name, uid: uid, gid: gid}, nil
	}
	return account{}, fmt.Errorf("PostgreSQL refuses to run as root, and this machine has neither a user postgres " +
		"nor nobody: create one (useradd --system postgres), or run this program as an ordinary user")
}

// mayEnter returns an error if a folder on the way to path is closed to the
// account. Without it, the symptom is a bare "permission denied" from the
// kernel that names the wrong file.
func (a account) mayEnter(path string) error {
	if !a.borrowed() {
		return nil
	}
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		uid, gid, _ := ownerOf(p)
		need := os.FileMode(0o001)
		switch {
		case uid == a.uid:
			need = 0o100
		case gid == a.gid:
			need = 0o010
		}
		if info.Mode()&need == 0 {
			return fmt.Errorf("PostgreSQL runs as %s here, who may not enter %s (mode %04o), so it cannot use %s: "+
				"choose a directory elsewhere, or run this program as an ordinary user", a.name, p, info.Mode().Perm(), path)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}
