package apiv1

import "time"

// An Identity is who is calling, and what they may do.
type Identity struct {
	Subject string   `json:"subject" doc:"Who is recorded as having acted; empty where nobody is asked who they are."`
	Grants  []string `json:"grants" doc:"What they may do: role@namespace, with * for all namespaces."`
	SignIn  bool     `json:"sign_in" doc:"Whether this server asks callers who they are."`
}

// FromIdentity returns the answer about an identity.
func FromIdentity(subject string, grants []string, signIn bool) Identity {
	return Identity{Subject: subject, Grants: append([]string{}, grants...), SignIn: signIn}
}

// A Key is how a program signs in.
type Key struct {
	KeyUUID    string     `json:"key_uuid" format:"uuid"`
	Name       string     `json:"name"`
	Grants     []string   `json:"grants" doc:"What it may do: role@namespace, with * for all namespaces."`
	Prefixes   []string   `json:"prefixes" doc:"How its secrets begin that are in use, the newest first."`
	CreatedBy  string     `json:"created_by"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"To the minute."`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	RevokedBy  *string    `json:"revoked_by,omitempty"`
}

// KeyList is a page of keys.
type KeyList struct {
	Keys       []Key      `json:"keys"`
	Pagination Pagination `json:"pagination"`
}

// CreateKey asks for a key.
type CreateKey struct {
	Name             string   `json:"name" minLength:"1" maxLength:"100" doc:"Without blanks, parentheses and %. What the key does is recorded as done by key:name."`
	Grants           []string `json:"grants" minItems:"1" maxItems:"100" doc:"What it may do: role@namespace. Roles: viewer, operator, developer, worker, admin. * stands for all namespaces."`
	ExpiresInSeconds *int64   `json:"expires_in_seconds,omitempty" minimum:"1" maximum:"315360000" doc:"After that it is not valid any more; absent means never."`
}

// CreatedKey is a key with its secret.
type CreatedKey struct {
	Key   Key    `json:"key"`
	Token string `json:"token" doc:"The secret, to be sent in the header Authorization: Bearer. It cannot be had again."`
}

// RotateKey asks for a new secret of a key.
type RotateKey struct {
	GraceSeconds int64 `json:"grace_seconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the secret before stays valid."`
}

// A Session is a browser that is signed in.
type Session struct {
	SessionUUID string    `json:"session_uuid" format:"uuid"`
	Subject     string    `json:"subject" doc:"Who is recorded as having acted."`
	KeyUUID     *string   `json:"key_uuid,omitempty" format:"uuid" doc:"The API key with which it signed in; absent means at the identity provider."`
	Groups      []string  `json:"groups" doc:"What the identity provider named as the groups of the subject."`
	CreatedAt   time.Time `json:"created_at"`
	LastUsedAt  time.Time `json:"last_used_at" doc:"To the minute."`
	EndsAt      time.Time `json:"ends_at" doc:"Unless it is used before; never later than its longest life."`
}

// SessionList is a page of sessions.
type SessionList struct {
	Sessions   []Session  `json:"sessions"`
	Pagination Pagination `json:"pagination"`
}

// EndSessions says which sessions end: one, or all of a subject.
type EndSessions struct {
	SessionUUID string `json:"session_uuid,omitempty" format:"uuid"`
	Subject     string `json:"subject,omitempty" maxLength:"255" doc:"All sessions of this subject, such as user:ann."`
}

// EndedSessions says how many sessions ended.
type EndedSessions struct {
	Ended int `json:"ended" doc:"0: none was open."`
}
