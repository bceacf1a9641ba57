package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// CreateKey stores a key and its token. It returns a Conflict if the name is in use or there are
// too many keys.
func (db *DB) CreateKey(ctx context.Context, k access.Key, validFor *time.Duration, token access.Token) error {
	made, err := collectColumn[tasker.ID](ctx, db.pool, statement("insertKey"), k.UUID, k.Name, k.Grants, k.CreatedBy, validFor, token.Prefix, token.Digest[:], tasker.MaxKeys)
	if err != nil || len(made) > 0 {
		return wrapError(err, "create key")
	}
	taken, err := queryValue[bool](ctx, db.pool, statement("keyExists"), k.Name)
	switch {
	case err != nil:
		return fmt.Errorf("find the name of a key: %w", err)
	case taken:
		return tasker.Errorf(tasker.Conflict,
			"key %s already exists: rotate it to get a new secret, or choose another name", k.Name)
	}
	return tasker.Errorf(tasker.Conflict, "the limit of %d keys is reached: revoke some first", tasker.MaxKeys)
}

// BootstrapKey stores the first key. It returns a Conflict if a key was ever created.
func (db *DB) BootstrapKey(ctx context.Context, k access.Key, token access.Token) error {
	return db.InTx(ctx, func(tx *Tx) error {
		// Concurrent calls wait for each other.
		if _, err := tx.Exec(ctx, statement("lockKeys")); err != nil {
			return err
		}
		some, err := keyExists(ctx, tx)
		if err != nil {
			return err
		}
		if some {
			return tasker.Errorf(tasker.Conflict,
				"the first key already exists: an administrator can create more with tasker-ctl key create")
		}
		_, err = collectColumn[tasker.ID](ctx, tx, statement("insertKey"), k.UUID, k.Name, k.Grants, k.CreatedBy, nil, token.Prefix, token.Digest[:], tasker.MaxKeys)
		return err
	})
}

// HasKey reports whether a key was ever created, including revoked ones.
func (db *DB) HasKey(ctx context.Context) (bool, error) { return keyExists(ctx, db.pool) }

func keyExists(ctx context.Context, q querier) (bool, error) {
	v, err := queryValue[bool](ctx, q, statement("anyKey"))
	return v, wrapError(err, "find keys")
}

// KeyFilter selects a page of keys.
type KeyFilter struct {
	Revoked       bool   // include revoked keys
	Search        string // exact name or prefix of a secret; empty selects all
	Limit, Offset int
}

// Keys lists keys, newest first, and reports whether there are more.
func (db *DB) Keys(ctx context.Context, f KeyFilter) ([]access.Key, bool, error) {
	list, err := collect[access.Key](ctx, db.pool, statement("selectKeys"), f.Limit+1, f.Offset, f.Revoked, f.Search)
	list, more := trimPage(list, f.Limit)
	return list, more, wrapError(err, "list keys")
}

// Key returns a key, or NotFound.
func (db *DB) Key(ctx context.Context, id tasker.ID) (access.Key, error) {
	return findKey(ctx, db.pool, id)
}

func findKey(ctx context.Context, q querier, id tasker.ID) (access.Key, error) {
	return queryRequired[access.Key](ctx, q, tasker.Errorf(tasker.NotFound, "key %s not found", id), "read key", statement("selectKey"), id)
}

// RotateKey replaces the secret of a key. Earlier secrets remain valid for the grace period. It
// returns a Conflict if the key is revoked or has expired.
func (db *DB) RotateKey(ctx context.Context, id tasker.ID, token access.Token, grace time.Duration, actor string) error {
	return db.InTx(ctx, func(tx *Tx) error {
		live, err := collectColumn[tasker.ID](ctx, tx, statement("rotateKey"), id, token.Prefix, token.Digest[:], grace,
			actor)
		if err != nil || len(live) > 0 {
			return err
		}
		k, err := findKey(ctx, tx, id)
		if err != nil {
			return err
		}
		return tasker.Errorf(tasker.Conflict, "key %s is revoked or expired: create a new one", k.Name)
	})
}

// RevokeKey revokes a key and ends its sessions. It returns NotFound if the key does not exist.
func (db *DB) RevokeKey(ctx context.Context, id tasker.ID, actor string) (access.Key, error) {
	if _, err := collectColumn[tasker.ID](ctx, db.pool, statement("revokeKey"), id, actor); err != nil {
		return access.Key{}, fmt.Errorf("revoke key: %w", err)
	}
	return db.Key(ctx, id)
}

// Credential describes a valid token or session.
type Credential struct {
	Prefix      string // prefix of a token
	Digest      []byte
	KeyUUID     *tasker.ID
	SessionUUID *tasker.ID
	Subject     string   // subject of a session without a key
	Name        string   // name of the key
	Grants      []string // grants of the key
	Groups      []string // groups of a session without a key
	Remaining   *time.Duration
}

// Tokens returns the credentials of all valid tokens with the given prefixes.
func (db *DB) Tokens(ctx context.Context, prefixes []string) ([]Credential, error) {
	list, err := collect[Credential](ctx, db.pool, statement("selectTokens"), prefixes)
	return list, wrapError(err, "find keys")
}

// Sessions returns the credentials of open sessions that were used within the given idle time.
func (db *DB) Sessions(ctx context.Context, digests [][]byte, idle time.Duration) ([]Credential, error) {
	list, err := collect[Credential](ctx, db.pool, statement("selectSessions"), digests, idle)
	return list, wrapError(err, "find sessions")
}

// ValidDigests returns the digests of all valid keys, open sign-ins and the newest sessions.
func (db *DB) ValidDigests(ctx context.Context, idle time.Duration, limit int) ([][]byte, error) {
	list, err := collectColumn[[]byte](ctx, db.pool, statement("selectValidDigests"), idle, limit)
	return list, wrapError(err, "read the digests of valid credentials")
}

// NewSession describes a browser session to store.
type NewSession struct {
	UUID    tasker.ID
	Digest  [32]byte
	Subject string
	KeyUUID *tasker.ID
	Groups  []string
	Life    time.Duration
	From    string // client address, for the audit log
}

// AddSession stores a session.
func (db *DB) AddSession(ctx context.Context, s NewSession) error {
	_, err := db.pool.Exec(ctx, statement("insertSession"), s.UUID, s.Digest[:], s.Subject, s.KeyUUID, nonNil(s.Groups), s.Life, s.From, tasker.MaxSessions)
	return wrapError(err, "store session")
}

// EndSession ends a session. If the session has already ended, it does nothing.
func (db *DB) EndSession(ctx context.Context, digest [32]byte) error {
	_, err := db.pool.Exec(ctx, statement("endSession"), digest[:])
	return wrapError(err, "end session")
}

// SignIn describes a pending sign-in at an identity provider.
type SignIn struct {
	Digest                       [32]byte `db:"-"`
	State, Nonce, Verifier, Back string
}

// AddSignIn stores a pending sign-in.
func (db *DB) AddSignIn(ctx context.Context, s SignIn) error {
	_, err := db.pool.Exec(ctx, statement("insertSignIn"), s.Digest[:], s.State, s.Nonce, s.Verifier, s.Back,
		tasker.MaxSignIns)
	return wrapError(err, "store sign-in")
}

// TakeSignIn removes and returns a pending sign-in. It returns nil if there is none from the last
// ten minutes.
func (db *DB) TakeSignIn(ctx context.Context, digest [32]byte) (*SignIn, error) {
	s, err := queryOne[SignIn](ctx, db.pool, statement("takeSignIn"), digest[:])
	if s != nil {
		s.Digest = digest
	}
	return s, wrapError(err, "find sign-in")
}

// AccessRevision returns a number that changes whenever access is reduced.
func (db *DB) AccessRevision(ctx context.Context) (int64, error) {
	n, err := queryValue[int64](ctx, db.pool, statement("accessRevision"))
	return n, wrapError(err, "read the access revision")
}

// RecordUse records when keys and sessions were last used, to the nearest half minute.
func (db *DB) RecordUse(ctx context.Context, keys, sessions []tasker.ID) error {
	if len(keys) > 0 {
		if _, err := db.pool.Exec(ctx, statement("noteKeyUse"), keys); err != nil {
			return fmt.Errorf("record the use of keys: %w", err)
		}
	}
	if len(sessions) > 0 {
		if _, err := db.pool.Exec(ctx, statement("noteSessionUse"), sessions); err != nil {
			return fmt.Errorf("record the use of sessions: %w", err)
		}
	}
	return nil
}

// FindNamespaces returns the namespaces of a resource, or nil if the resource does not exist.
func (db *DB) FindNamespaces(ctx context.Context, kind access.Kind, id tasker.ID) ([]string, error) {
	if kind == access.ExplainedKind {
		of, err := db.FindExplained(ctx, id)
		if err != nil || of == nil {
			return nil, err
		}
		return of.Namespaces, nil
	}
	found, err := collectColumn[[]string](ctx, db.pool, statement("selectNamespace"), string(kind), id)
	if err != nil || len(found) == 0 {
		return nil, wrapError(err, "find the namespace of a resource")
	}
	return found[0], nil
}

// AuditRefusal adds a refused request to the audit log.
func (db *DB) AuditRefusal(ctx context.Context, actor, action string, data map[string]string) error {
	doc, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode a refusal: %w", err)
	}
	return db.Audit(ctx, actor, action, "", doc)
}
