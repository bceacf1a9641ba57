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

// CreateKey stores a key with an optional lifetime. It returns a Conflict for a used name.
func (db *DB) CreateKey(ctx context.Context, k access.Key, validFor *time.Duration, token access.Token) error {
	made, err := column[tasker.ID](ctx, db.pool, insertKey, k.UUID, k.Name, k.Grants, k.CreatedBy, validFor, token.Prefix, token.Digest[:], tasker.MaxKeys)
	switch {
	case err != nil:
		return fmt.Errorf("create key: %w", err)
	case len(made) > 0:
		return nil
	}
	taken, err := column[bool](ctx, db.pool, `SELECT EXISTS (SELECT FROM tasker.api_keys WHERE name = $1 AND revoked_at IS NULL)`, k.Name)
	switch {
	case err != nil:
		return fmt.Errorf("find the name of a key: %w", err)
	case taken[0]:
		return tasker.Errorf(tasker.Conflict, "there is a key named %s; rotate it to get a new secret, or choose another name", k.Name)
	default:
		return tasker.Errorf(tasker.Conflict, "there are %d keys, and no more can be made; revoke some first", tasker.MaxKeys)
	}
}

// BootstrapKey stores the first key. The error is Conflict when there ever was one.
func (db *DB) BootstrapKey(ctx context.Context, k access.Key, token access.Token) error {
	return db.InTx(ctx, func(tx *Tx) error {
		// Of two at once the second waits, and finds the first.
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

// AnyKey reports whether there ever was a key.
func (db *DB) AnyKey(ctx context.Context) (bool, error) { return anyKey(ctx, db.pool) }

func anyKey(ctx context.Context, q querier) (bool, error) {
	v, err := value[bool](ctx, q, `SELECT EXISTS (SELECT FROM tasker.api_keys)`)
	return v, wrap(err, "find keys")
}

// keysWithPrefixes are keys with how their secrets begin.
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

// A KeyFilter selects and pages keys, the newest first.
type KeyFilter struct {
	Revoked       bool   // also those that are revoked
	Search        string // a name or a prefix; empty means any
	Limit, Offset int
}

// Keys lists keys, and says whether there are more.
func (db *DB) Keys(ctx context.Context, f KeyFilter) ([]access.Key, bool, error) {
	list, err := collect[access.Key](ctx, db.pool, selectKeys, f.Limit+1, f.Offset, f.Revoked, f.Search)
	if err != nil {
		return nil, false, fmt.Errorf("list keys: %w", err)
	}
	list, more := page(list, f.Limit)
	return list, more, nil
}

const selectKey = keysWithPrefixes + `
WHERE k.key_uuid = $1`

// Key returns a key. The error is NotFound when there is none.
func (db *DB) Key(ctx context.Context, id tasker.ID) (access.Key, error) {
	return key(ctx, db.pool, id)
}

func key(ctx context.Context, q querier, id tasker.ID) (access.Key, error) {
	k, err := one[access.Key](ctx, q, selectKey, id)
	if err != nil {
		return access.Key{}, fmt.Errorf("read key: %w", err)
	}
	if k == nil {
		return access.Key{}, tasker.Errorf(tasker.NotFound, "no key %s", id)
	}
	return *k, nil
}

// Of the secrets before, none is valid for longer than the one before the new one.
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

// RotateKey replaces the secret of a key; old ones stay valid for a while.
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

// RevokeKey revokes a key and its sessions. It returns NotFound for an unknown key.
func (db *DB) RevokeKey(ctx context.Context, id tasker.ID, actor string) (access.Key, error) {
	if _, err := column[tasker.ID](ctx, db.pool, revokeKey, id, actor); err != nil {
		return access.Key{}, fmt.Errorf("revoke key: %w", err)
	}
	return db.Key(ctx, id)
}

// A Credential is what a token or a session stands for, while it is valid.
type Credential struct {
	Prefix      string // of a token
	Digest      []byte
	KeyUUID     *tasker.ID
	SessionUUID *tasker.ID
	Subject     string   // of a session without a key
	Name        string   // of the key
	Grants      []string // of the key
	Groups      []string // of a session without a key
	Left        *time.Duration
}

const selectTokens = `
SELECT s.prefix, s.digest, k.key_uuid, NULL::uuid AS session_uuid, '' AS subject, k.name, k.grants, '{}'::text[] AS groups,
    least(s.ends_at, k.expires_at) - clock_timestamp() AS left
FROM unnest($1::text[]) AS p (prefix)
JOIN tasker.api_key_secrets s ON s.prefix = p.prefix
JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
  AND (s.ends_at IS NULL OR s.ends_at > clock_timestamp())`

// Tokens returns the credentials of the valid tokens with some prefixes.
func (db *DB) Tokens(ctx context.Context, prefixes []string) ([]Credential, error) {
	list, err := collect[Credential](ctx, db.pool, selectTokens, prefixes)
	return list, wrap(err, "find keys")
}

const selectSessions = `
SELECT '' AS prefix, s.digest, s.key_uuid, s.session_uuid, s.subject, coalesce(k.name, '') AS name, coalesce(k.grants, '{}') AS grants, s.groups,
    least(s.ends_at, s.seen_at + $2::interval, k.expires_at) - clock_timestamp() AS left
FROM unnest($1::bytea[]) AS d (digest)
JOIN tasker.sessions s ON s.digest = d.digest
LEFT JOIN tasker.api_keys k ON k.key_uuid = s.key_uuid
WHERE s.ended_at IS NULL AND s.ends_at > clock_timestamp() AND s.seen_at + $2::interval > clock_timestamp()
  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())`

// Sessions returns the credentials of sessions that have not ended or been idle for too long.
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

// A NewSession is a browser that has signed in.
type NewSession struct {
	UUID    tasker.ID
	Digest  [32]byte
	Subject string
	KeyUUID *tasker.ID
	Groups  []string
	Life    time.Duration
	From    string // the address, for the audit log
}

// Each new session removes a few old ones, and surplus ones of its subject: ended, then oldest.
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
	groups := append([]string{}, s.Groups...)
	_, err := db.pool.Exec(ctx, insertSession, s.UUID, s.Digest[:], s.Subject, s.KeyUUID, groups, s.Life, s.From, tasker.MaxSessions)
	return wrap(err, "store session")
}

const endSession = `
WITH ended AS (
    UPDATE tasker.sessions SET ended_at = clock_timestamp() WHERE digest = $1 AND ended_at IS NULL
    RETURNING session_uuid, subject
)
INSERT INTO tasker.audit_events (actor, action, subject)
SELECT subject, 'session.ended', session_uuid::text FROM ended`

// EndSession ends a session; one that has ended stays so.
func (db *DB) EndSession(ctx context.Context, digest [32]byte) error {
	_, err := db.pool.Exec(ctx, endSession, digest[:])
	return wrap(err, "end session")
}

// A SignIn is a browser that is at the identity provider.
type SignIn struct {
	Digest                       [32]byte
	State, Nonce, Verifier, Back string
}

// Each new sign-in removes a few abandoned ones, and the oldest if strangers began too many.
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

// AddSignIn stores a sign-in that has begun.
func (db *DB) AddSignIn(ctx context.Context, s SignIn) error {
	_, err := db.pool.Exec(ctx, insertSignIn, s.Digest[:], s.State, s.Nonce, s.Verifier, s.Back, tasker.MaxSignIns)
	return wrap(err, "store sign-in")
}

// TakeSignIn removes and returns a sign-in of the last ten minutes; nil without one.
func (db *DB) TakeSignIn(ctx context.Context, digest [32]byte) (*SignIn, error) {
	type row struct{ State, Nonce, Verifier, Back string }
	found, err := one[row](ctx, db.pool, `
		DELETE FROM tasker.sign_ins WHERE digest = $1 AND created_at > clock_timestamp() - interval '10 min'
		RETURNING state, nonce, verifier, back`, digest[:])
	if err != nil {
		return nil, fmt.Errorf("find sign-in: %w", err)
	}
	if found == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	return &SignIn{Digest: digest, State: found.State, Nonce: found.Nonce, Verifier: found.Verifier, Back: found.Back}, nil
}

// AccessRevision returns a number that changes when access is reduced.
func (db *DB) AccessRevision(ctx context.Context) (n int64, err error) {
	n, err = value[int64](ctx, db.pool, `SELECT revision FROM tasker.access_revision`)
	return n, wrap(err, "ask for changes of access")
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

// NoteUse records that keys and sessions are used now.
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

// NamespacesOf returns the namespaces of a resource of any kind; nil without one.
func (db *DB) NamespacesOf(ctx context.Context, kind access.Kind, id tasker.ID) ([]string, error) {
	if kind == access.ExplainedKind {
		of, err := db.FindExplained(ctx, id)
		if err != nil || of == nil {
			return nil, err
		}
		return of.Namespaces, nil
	}
	type row struct{ Namespaces []string }
	found, err := one[row](ctx, db.pool, selectNamespace, string(kind), id)
	if err != nil {
		return nil, fmt.Errorf("find the namespace of a resource: %w", err)
	}
	if found == nil {
		return nil, nil
	}
	return found.Namespaces, nil
}

// AuditRefusal records that somebody was refused. What it is about is in data.
func (db *DB) AuditRefusal(ctx context.Context, actor, action string, data map[string]string) error {
	doc, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode a refusal: %w", err)
	}
	return db.Audit(ctx, actor, action, "", doc)
}
