package auth

import (
	"cmp"
	"context"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/postgres"
)

// NewKey describes a key to create.
type NewKey struct {
	Name     string
	Grants   []string
	ValidFor *time.Duration // nil: forever
	Actor    string         // empty without authentication
}

// CreateKey creates a key and returns its token, which is not stored. Errors are Invalid or Conflict.
func CreateKey(ctx context.Context, db *postgres.DB, n NewKey) (access.Key, string, error) {
	k, token, err := n.generate()
	if err != nil {
		return access.Key{}, "", err
	}
	if err := db.CreateKey(ctx, k, n.ValidFor, token); err != nil {
		return access.Key{}, "", err
	}
	k, err = db.Key(ctx, k.UUID)
	return k, token.Text, err
}

// BootstrapKey creates the first administrator key. It returns a Conflict if there is one already.
func BootstrapKey(ctx context.Context, db *postgres.DB, name string) (token string, err error) {
	n := NewKey{Name: name, Grants: []string{access.Grant{Role: access.Admin, Namespace: access.AllNamespaces}.String()}, Actor: "bootstrap"}
	k, made, err := n.generate()
	if err != nil {
		return "", err
	}
	return made.Text, db.BootstrapKey(ctx, k, made)
}

func (n NewKey) generate() (access.Key, access.Token, error) {
	if err := access.CheckKeyName(n.Name); err != nil {
		return access.Key{}, access.Token{}, err
	}
	grants, err := access.ParseGrants(n.Grants)
	if err != nil {
		return access.Key{}, access.Token{}, err
	}
	if len(grants) == 0 {
		return access.Key{}, access.Token{}, tasker.Errorf(tasker.Invalid, "missing grants: set at least one, such as operator@payments")
	}
	k := access.Key{UUID: tasker.NewID(), Name: n.Name, CreatedBy: n.Actor}
	k.CreatedBy = cmp.Or(k.CreatedBy, "unknown")
	for _, g := range grants {
		k.Grants = append(k.Grants, g.String())
	}
	return k, access.NewToken(), nil
}
