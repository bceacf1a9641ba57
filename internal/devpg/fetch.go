package devpg

import (
	"context"
	"errors"
)

// installAdvice is what to do on a machine without PostgreSQL.
const installAdvice = "no PostgreSQL 15 or newer on this machine. Install it:\n" +
	"  Debian, Ubuntu:  apt install postgresql\n" +
	"  Fedora, RHEL:    dnf install postgresql-server\n" +
	"  macOS:           brew install postgresql@17\n" +
	"or say where it is with " + binEnv + ", or use a server of your own with --database-url"

func fetch(ctx context.Context, o Options) (programs, error) {
	return programs{}, errors.New("not yet")
}
