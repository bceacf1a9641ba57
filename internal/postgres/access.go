package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

const insertKey = `
WITH made AS (
    INSERT INTO tasker.api_keys (key_uuid, name, grants, created_by, expires_at)
    SELECT $1, $2, $3, $4, clock_timestamp() + $5::interval
    WHERE (SELECT count(*) FROM (SELECT FROM tasker.api_keys WHERE revoked_at IS NULL LIMIT $8) k) < $8
    ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
    RETURNING key_uuid
),
secret AS (
    INSERT INTO tasker.api_key_secrets (prefix, key_uuid, digest)
    SELECT $6, key_uuid, $7 FROM made
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $4, 'key.created', key_uuid::text, jsonb_build_object('name', $2::text, 'grants', $3::text[], 'prefix', $6::text) FROM made
)
SELECT key_uuid FROM made`

// CreateKey stores a key. It returns a Conflict if the name is in use or there are too many keys.
func (db *DB) CreateKey(ctx context.Context, k access.Key, validFor *time.Duration, token access.Token) error {
	made, err := column[tasker.ID](ctx, db.pool, insertKey, k.UUID, k.Name, k.Grants, k.CreatedBy, validFor, token.Prefix, token.Digest[:], tasker.MaxKeys)
	if err != nil || len(made) > 0 {
		return wrap(err, "create key")
	}
	taken, err := value[bool](ctx, db.pool, `SELECT EXISTS (SELECT FROM tasker.api_keys WHERE name = $1 AND revoked_at IS NULL)`, k.Name)
	switch {
	case err != nil:
		return fmt.Errorf("find the name of a key: %w", err)
	case taken:
		return tasker.Errorf(tasker.Conflict, "there is a key named %s; rotate it to get a new secret, or choose another name", k.Name)
	}
	return tasker.Errorf(tasker.Conflict, "there are %d keys, and no more can be made; revoke some first", tasker.MaxKeys)
}

// BootstrapKey stores the first key. It returns a Conflict if any key was ever created.
func (db *DB) BootstrapKey(ctx context.Context, k access.Key, token access.Token) error {
	return db.InTx(ctx, func(tx *Tx) error {
		// Serializes concurrent calls.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('tasker.api_keys', 0))`); err != nil {
			return err
		}
		some, err := anyKey(ctx, tx)
		if err != nil {
			return err
		}
		if some {
			return tasker.Errorf(tasker.Conflict, "there are keys already: the first one is made once; an administrator makes more with tasker-ctl key create")
		}
		_, err = column[tasker.ID](ctx, tx, insertKey, k.UUID, k.Name, k.Grants, k.CreatedBy, nil, token.Prefix, token.Digest[:], tasker.MaxKeys)
		return err
	})
}

// AnyKey reports whether a key was ever created.
func (db *DB) AnyKey(ctx context.Context) (bool, error) { return anyKey(ctx, db.pool) }

func anyKey(ctx context.Context, q querier) (bool, error) {
	v, err := value[bool](ctx, q, `SELECT EXISTS (SELECT FROM tasker.api_keys)`)
	return v, wrap(err, "find keys")
}

// keysWithPrefixes selects keys with the prefixes of their valid secrets.
const keysWithPrefixes = `
SELECT k.key_uuid AS uuid, k.name, k.grants, k.created_by, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.revoked_by,
    array(
        SELECT s.prefix FROM tasker.api_key_secrets s
        WHERE s.key_uuid = k.key_uuid AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp())
        ORDER BY s.created_at DESC, s.prefix
    ) AS prefixes
FROM tasker.api_keys k`

const selectKeys = keysWithPrefixes + `
WHERE ($3 OR k.revoked_at IS NULL)
  AND ($4 = '' OR k.name = $4 OR k.key_uuid = (SELECT s.key_uuid FROM tasker.api_key_secrets s WHERE s.prefix = $4))
ORDER BY k.created_at DESC, k.key_uuid DESC
LIMIT $1 OFFSET $2`

// KeyFilter selects a page of keys.
type KeyFilter struct {
	Revoked       bool   // include revoked keys
	Search        string // exact name or secret prefix; empty selects all
	Limit, Offset int
}

// Keys lists keys, newest first, and reports whether there are more.
func (db *DB) Keys(ctx context.Context, f KeyFilter) ([]access.Key, bool, error) {
	list, err := collect[access.Key](ctx, db.pool, selectKeys, f.Limit+1, f.Offset, f.Revoked, f.Search)
	list, more := page(list, f.Limit)
	return list, more, wrap(err, "list keys")
}

const selectKey = keysWithPrefixes + `
WHERE k.key_uuid = $1`

// Key returns a key or NotFound.
func (db *DB) Key(ctx context.Context, id tasker.ID) (access.Key, error) {
	return key(ctx, db.pool, id)
}

func key(ctx context.Context, q querier, id tasker.ID) (access.Key, error) {
	return required[access.Key](ctx, q, tasker.Errorf(tasker.NotFound, "no key %s", id), "read key", selectKey, id)
}

// All previous secrets expire after the grace period $4 at the latest.
const rotateKey = `
WITH live AS MATERIALIZED (
    SELECT key_uuid, name FROM tasker.api_keys
    WHERE key_uuid = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
    FOR NO KEY UPDATE
),
old AS (
    UPDATE tasker.api_key_secrets s SET ends_at = least(s.ends_at, clock_timestamp() + $4::interval)
    FROM live l WHERE s.key_uuid = l.key_uuid
),
secret AS (
    INSERT INTO tasker.api_key_secrets (prefix, key_uuid, digest) SELECT $2, key_uuid, $3 FROM live
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $5, 'key.rotated', key_uuid::text, jsonb_build_object('name', name, 'prefix', $2::text) FROM live
)
SELECT key_uuid FROM live`

// RotateKey replaces the secret of a key; earlier secrets stay valid for the grace period. It
// returns a Conflict if the key is revoked or expired.
func (db *DB) RotateKey(ctx context.Context, id tasker.ID, token access.Token, grace time.Duration, actor string) error {
	return db.InTx(ctx, func(tx *Tx) error {
		live, err := column[tasker.ID](ctx, tx, rotateKey, id, token.Prefix, token.Digest[:], grace, actor)
		if err != nil || len(live) > 0 {
			return err
		}
		k, err := key(ctx, tx, id)
		if err != nil {
			return err
		}
		return tasker.Errorf(tasker.Conflict, "key %s is revoked or has expired; create a new one", k.Name)
	})
}

const revokeKey = `
WITH revoked AS (
    UPDATE tasker.api_keys SET revoked_at = clock_timestamp(), revoked_by = $2
    WHERE key_uuid = $1 AND revoked_at IS NULL
    RETURNING key_uuid, name
),
audit AS (
    INSERT INTO tasker.audit_events (actor, action, subject, data)
    SELECT $2, 'key.revoked', key_uuid::text, jsonb_build_object('name', name) FROM revoked
)
SELECT key_uuid FROM revoked`

// RevokeKey revokes a key and its sessions, or returns NotFound.
func (db *DB) RevokeKey(ctx context.Context, id tasker.ID, actor string) (access.Key, error) {
	if _, err := column[tasker.ID](ctx, db.pool, revokeKey, id, actor); err != nil {
		return access.Key{}, fmt.Errorf("revoke key: %w", err)
	}
	return db.Key(ctx, id)
}

// Credential describes a valid token or session.
type Credential struct {
	Prefix      string // of a token
	Digest      []byte
	KeyUUID     *tasker.ID
	SessionUUID *tasker.ID
	Subject     string   // of a session without a key
	Name        string   // of the key
	Grants      []string // of the key
	Groups      []string // of a session without a key
	Remaining   *time.Duration
}

const selectTokens = `
SELECT s.prefix, s.digest, k.key_uuid, NULL::uuid AS session_uuid, '' AS subject, k.name, k.grants, '{}'::text[] AS groups,
    least(s.ends_at, k.expires_at) - clock_timestamp() AS remaining
FROM unnest($1::text[]) AS p (prefix)
JOIN tasker.api_key_secrets s ON s.prefix = p.prefix
JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp())`

// Tokens returns the credentials of the valid tokens with the prefixes.
func (db *DB) Tokens(ctx context.Context, prefixes []string) ([]Credential, error) {
	list, err := collect[Credential](ctx, db.pool, selectTokens, prefixes)
	return list, wrap(err, "find keys")
}

const selectSessions = `
SELECT '' AS prefix, s.digest, s.key_uuid, s.session_uuid, s.subject, coalesce(k.name, '') AS name, coalesce(k.grants, '{}') AS grants, s.groups,
    least(s.ends_at, s.seen_at + $2::interval, k.expires_at) - clock_timestamp() AS remaining
FROM unnest($1::bytea[]) AS d (digest)
JOIN tasker.sessions s ON s.digest = d.digest
LEFT JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE s.ended_at IS NULL AND s.ends_at > clock_timestamp() AND s.seen_at + $2::interval > clock_timestamp()
  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())`

// Sessions returns the credentials of open sessions that were used within the idle time.
func (db *DB) Sessions(ctx context.Context, digests [][]byte, idle time.Duration) ([]Credential, error) {
	list, err := collect[Credential](ctx, db.pool, selectSessions, digests, idle)
	return list, wrap(err, "find sessions")
}

const selectValidDigests = `
SELECT s.digest
FROM tasker.api_key_secrets s
JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp())
UNION ALL
(SELECT digest FROM tasker.sessions
 WHERE ended_at IS NULL AND ends_at > clock_timestamp() AND seen_at + $1::interval > clock_timestamp()
 ORDER BY session_uuid DESC LIMIT $2)
UNION ALL
SELECT digest FROM tasker.sign_ins WHERE created_at > clock_timestamp() - interval '10 min'`

// ValidDigests returns the digests of all valid keys, the newest sessions and open sign-ins.
func (db *DB) ValidDigests(ctx context.Context, idle time.Duration, limit int) ([][]byte, error) {
	list, err := column[[]byte](ctx, db.pool, selectValidDigests, idle, limit)
	return list, wrap(err, "read the digests of valid credentials")
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

// Also removes up to 20 old sessions and the surplus of the subject, ended and oldest ones first.
const insertSession = `
WITH old AS (
    DELETE FROM tasker.sessions WHERE session_uuid IN (
        SELECT session_uuid FROM tasker.sessions
        WHERE ends_at < clock_timestamp() - interval '1 day' ORDER BY ends_at LIMIT 20 FOR UPDATE SKIP LOCKED
    )
),
over AS (
    DELETE FROM tasker.sessions WHERE session_uuid IN (
        SELECT session_uuid FROM tasker.sessions WHERE subject = $3
        ORDER BY ended_at IS NULL AND ends_at > clock_timestamp() DESC, created_at DESC OFFSET $8 - 1
    )
),
made AS (
    INSERT INTO tasker.sessions (session_uuid, digest, subject, key_uuid, groups, ends_at)
    VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6::interval)
)
INSERT INTO tasker.audit_events (actor, action, subject, data)
VALUES ($3, 'session.created', $1::uuid::text, jsonb_build_object('from', $7::text))`

// AddSession stores a session.
func (db *DB) AddSession(ctx context.Context, s NewSession) error {
	_, err := db.pool.Exec(ctx, insertSession, s.UUID, s.Digest[:], s.Subject, s.KeyUUID, noNil(s.Groups), s.Life, s.From, tasker.MaxSessions)
	return wrap(err, "store session")
}

const endSession = `
WITH ended AS (
    UPDATE tasker.sessions SET ended_at = clock_timestamp() WHERE digest = $1 AND ended_at IS NULL
    RETURNING session_uuid, subject
)
INSERT INTO tasker.audit_events (actor, action, subject)
SELECT subject, 'session.ended', session_uuid::text FROM ended`

// EndSession ends a session. It does nothing if the session has ended.
func (db *DB) EndSession(ctx context.Context, digest [32]byte) error {
	_, err := db.pool.Exec(ctx, endSession, digest[:])
	return wrap(err, "end session")
}

// SignIn describes a pending sign-in at the identity provider.
type SignIn struct {
	Digest                       [32]byte `db:"-"`
	State, Nonce, Verifier, Back string
}

// Also removes up to 20 abandoned sign-ins, and the oldest ones over the limit.
const insertSignIn = `
WITH old AS (
    DELETE FROM tasker.sign_ins WHERE digest IN (
        SELECT digest FROM tasker.sign_ins
        WHERE created_at < clock_timestamp() - interval '10 min' ORDER BY created_at LIMIT 20 FOR UPDATE SKIP LOCKED
    )
),
over AS (
    DELETE FROM tasker.sign_ins WHERE digest IN (
        SELECT digest FROM tasker.sign_ins ORDER BY created_at DESC OFFSET $6 - 1 LIMIT 20
    )
)
INSERT INTO tasker.sign_ins (digest, state, nonce, verifier, back) VALUES ($1, $2, $3, $4, $5)`

// AddSignIn stores a pending sign-in.
func (db *DB) AddSignIn(ctx context.Context, s SignIn) error {
	_, err := db.pool.Exec(ctx, insertSignIn, s.Digest[:], s.State, s.Nonce, s.Verifier, s.Back, tasker.MaxSignIns)
	return wrap(err, "store sign-in")
}

// TakeSignIn removes and returns a sign-in of the last ten minutes, or nil.
func (db *DB) TakeSignIn(ctx context.Context, digest [32]byte) (*SignIn, error) {
	s, err := one[SignIn](ctx, db.pool, `
		DELETE FROM tasker.sign_ins WHERE digest = $1 AND created_at > clock_timestamp() - interval '10 min'
		RETURNING state, nonce, verifier, back`, digest[:])
	if s != nil {
		s.Digest = digest
	}
	return s, wrap(err, "find sign-in")
}

// AccessRevision returns a number that changes when access is reduced.
func (db *DB) AccessRevision(ctx context.Context) (int64, error) {
	n, err := value[int64](ctx, db.pool, `SELECT revision FROM tasker.access_revision`)
	return n, wrap(err, "read the access revision")
}

const noteKeyUse = `
UPDATE tasker.api_keys k SET last_used_at = clock_timestamp()
FROM (
    SELECT key_uuid FROM tasker.api_keys
    WHERE key_uuid = ANY ($1) AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '30 seconds')
    ORDER BY key_uuid FOR NO KEY UPDATE SKIP LOCKED
) u
WHERE k.key_uuid = u.key_uuid`

const noteSessionUse = `
UPDATE tasker.sessions s SET seen_at = clock_timestamp()
FROM (
    SELECT session_uuid FROM tasker.sessions
    WHERE session_uuid = ANY ($1) AND seen_at < clock_timestamp() - interval '30 seconds'
    ORDER BY session_uuid FOR NO KEY UPDATE SKIP LOCKED
) u
WHERE s.session_uuid = u.session_uuid`

// NoteUse records the time of use of keys and sessions, to half a minute.
func (db *DB) NoteUse(ctx context.Context, keys, sessions []tasker.ID) error {
	if len(keys) > 0 {
		if _, err := db.pool.Exec(ctx, noteKeyUse, keys); err != nil {
			return fmt.Errorf("note the use of keys: %w", err)
		}
	}
	if len(sessions) > 0 {
		if _, err := db.pool.Exec(ctx, noteSessionUse, sessions); err != nil {
			return fmt.Errorf("note the use of sessions: %w", err)
		}
	}
	return nil
}

const selectNamespace = `
SELECT n.namespaces
FROM (
    SELECT ARRAY[namespace] AS namespaces FROM tasker.tasks WHERE $1 = 'task' AND task_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.tasks_dlq WHERE $1 = 'investigation' AND dlq_entry_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.cases WHERE $1 = 'case' AND case_id = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.incidents WHERE $1 = 'incident' AND incident_id = $2
    UNION ALL
    SELECT namespaces FROM tasker.workers WHERE $1 = 'worker' AND worker_uuid = $2
    UNION ALL
    SELECT ARRAY[d.namespace] FROM tasker.outbox o JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = o.dlq_entry_uuid
    WHERE $1 = 'event' AND o.event_uuid = $2
    UNION ALL
    SELECT namespaces FROM tasker.operations WHERE $1 = 'operation' AND operation_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.holds WHERE $1 = 'hold' AND hold_uuid = $2
    UNION ALL
    SELECT ARRAY[namespace] FROM tasker.schedules WHERE $1 = 'schedule' AND schedule_uuid = $2
) n`

// NamespacesOf returns the namespaces of a resource of any kind, or nil if it does not exist.
func (db *DB) NamespacesOf(ctx context.Context, kind access.Kind, id tasker.ID) ([]string, error) {
	if kind == access.ExplainedKind {
		of, err := db.FindExplained(ctx, id)
		if err != nil || of == nil {
			return nil, err
		}
		return of.Namespaces, nil
	}
	found, err := column[[]string](ctx, db.pool, selectNamespace, string(kind), id)
	if err != nil || len(found) == 0 {
		return nil, wrap(err, "find the namespace of a resource")
	}
	return found[0], nil
}

// AuditRefusal records a refused request with its details.
func (db *DB) AuditRefusal(ctx context.Context, actor, action string, data map[string]string) error {
	doc, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode a refusal: %w", err)
	}
	return db.Audit(ctx, actor, action, "", doc)
}
