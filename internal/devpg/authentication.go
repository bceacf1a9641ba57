package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	rulesFile    = dataFolder + "/pg_hba.conf"
	newRulesFile = dataFolder + "/pg_hba.conf.new"
)

// rules allows only password authentication over loopback.
const rules = `# Written by tasker when it starts this server; what is changed here is lost.
host all all 127.0.0.1/32 scram-sha-256
`

// requireScram is a URL parameter for connections of this program. It prevents the password from
// being sent in plain text to another program that uses the port of a stopped server. psql
// supports it from version 16 on.
const requireScram = "&require_auth=scram-sha-256"

// secureAccess restricts the cluster to its owner. It also changes the password of a cluster that
// did not require one before.
func (c *cluster) secureAccess(ctx context.Context) error {
	if err := c.restrictFiles(); err != nil {
		return err
	}
	was, err := c.dir.readFile(rulesFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the client authentication of the cluster in %s: %w", c.dir.path, err)
	}
	reason := ""
	if !requiresPasswords(string(was)) {
		reason = "other users of this machine could connect without it: check for roles that you did not create"
	} else if _, err := c.dir.root.Lstat(passwordFile); errors.Is(err, fs.ErrNotExist) {
		reason = "its file is missing"
	}
	if reason != "" {
		c.log.WarnContext(ctx, "setting a new password for the private PostgreSQL", "dir", c.dir.path, "reason", reason)
		if err := c.changePassword(ctx); err != nil {
			return err
		}
	}
	if string(was) == rules {
		return nil
	}
	// This is the last step, so that an interrupted call is repeated at the next start.
	return c.writeRules()
}

// restrictFiles removes the permissions of other users.
func (c *cluster) restrictFiles() error {
	if err := c.restrictFolder(); err != nil {
		return fmt.Errorf("restrict access to %s: %w", c.dir.path, err)
	}
	for name, mode := range map[string]os.FileMode{dataFolder: 0o700, passwordFile: 0o600} {
		info, err := c.dir.root.Lstat(name)
		if err == nil && info.Mode().Perm() != mode && info.Mode().Type()&fs.ModeSymlink == 0 {
			err = c.dir.root.Chmod(name, mode)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restrict access to %s in %s: %w", name, c.dir.path, err)
		}
	}
	return nil
}

// restrictFolder restricts a folder that createFolder opened for the account. Folders with another
// owner keep their mode.
func (c *cluster) restrictFolder() error {
	uid, _, ok := findOwner(c.dir.path)
	if !c.account.IsOtherUser() || !ok || uid != os.Geteuid() {
		return nil
	}
	info, err := c.dir.root.Stat(".")
	if err != nil || (info.Mode().Perm() != openToEnter && info.Mode().Perm() != openToGroup) {
		return err
	}
	if err := c.dir.root.Chown(".", -1, c.account.GID); err != nil {
		return err
	}
	return c.dir.root.Chmod(".", openToGroup)
}

// requiresPasswords reports whether every rule in the text of a pg_hba.conf requires a password or
// rejects the connection. It returns false for a file that has no rules or includes other files.
func requiresPasswords(text string) bool {
	some := false
	for line := range strings.Lines(text) {
		rule, _, _ := strings.Cut(line, "#")
		fields := strings.Fields(rule)
		if len(fields) == 0 {
			continue
		}
		asks := slices.ContainsFunc(fields, func(f string) bool {
			return f == "scram-sha-256" || f == "md5" || f == "password" || f == "reject"
		})
		if !asks || slices.Contains(fields, "trust") {
			return false
		}
		some = true
	}
	return some
}

// writeRules replaces the rules of the cluster. It never writes into the existing file, which the
// account may have replaced.
func (c *cluster) writeRules() error {
	if err := c.dir.root.Remove(newRulesFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := c.dir.root.OpenFile(newRulesFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the client authentication of the cluster: %w", err)
	}
	if c.account.IsOtherUser() {
		err = f.Chown(c.account.UID, c.account.GID)
	}
	_, werr := f.WriteString(rules)
	if err := errors.Join(err, werr, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the client authentication of the cluster: %w", err)
	}
	return c.dir.root.Rename(newRulesFile, rulesFile)
}

// changePassword sets a new password for the owner of the cluster. It uses the single-user mode,
// so that no connections are possible. It passes the statement through standard input, so that it
// does not appear in the process list, and does not log it.
func (c *cluster) changePassword(ctx context.Context) error {
	if err := c.dir.newPassword(c.account); err != nil {
		return fmt.Errorf("write a password: %w", err)
	}
	password, err := c.dir.readPassword()
	if err != nil {
		return err
	}
	out, err := c.dir.createLog()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(c.bin.dir, "postgres"), "--single", "-D", c.dir.dataPath(), //nolint:noctx // process.wait ends it with ctx
		"-c", "exit_on_error=on", "-c", "log_statement=none", "-c", "log_min_duration_statement=-1",
		"-c", "log_min_error_statement=panic", "-c", "password_encryption=scram-sha-256", "postgres")
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir.path, out, out
	cmd.Stdin = strings.NewReader("ALTER ROLE " + owner + " LOGIN PASSWORD '" + password + "'\n")
	p, err := startProcess(cmd, c.account, syscall.SIGTERM)
	if err != nil {
		return fmt.Errorf("start postgres to change the password: %w", err)
	}
	if err := p.wait(ctx); err != nil {
		return fmt.Errorf("change the password of the cluster in %s: %w\n%s", c.dir.path, err, c.dir.readLogTail())
	}
	return nil
}
