package apiv1

import "time"

// Identity describes the caller and its permissions.
type Identity struct {
	Subject string   `json:"subject" doc:"Subject recorded as the actor. Empty if the server does not authenticate."`
	Grants  []string `json:"grants" doc:"Granted roles as role@namespace. * means all namespaces."`
	SignIn  bool     `json:"sign_in" doc:"Whether this server authenticates callers."`
}

// FromIdentity converts an identity.
func FromIdentity(subject string, grants []string, signIn bool) Identity {
	return Identity{Subject: subject, Grants: orEmpty(grants), SignIn: signIn}
}

// Key is an API key.
type Key struct {
	KeyUUID    string     `json:"key_uuid" format:"uuid"`
	Name       string     `json:"name"`
	Grants     []string   `json:"grants" doc:"Granted roles as role@namespace. * means all namespaces."`
	Prefixes   []string   `json:"prefixes" doc:"Prefixes of its valid secrets, newest first."`
	CreatedBy  string     `json:"created_by"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"Minute precision."`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	RevokedBy  *string    `json:"revoked_by,omitempty"`
}

// KeyList is a page of keys.
type KeyList struct {
	Keys       []Key      `json:"keys"`
	Pagination Pagination `json:"pagination"`
}

// CreateKey creates an API key.
type CreateKey struct {
	Name             string   `json:"name" minLength:"1" maxLength:"100" doc:"Without blanks, parentheses and %. Actions of the key are recorded as key:name."`
	Grants           []string `json:"grants" minItems:"1" maxItems:"100" doc:"Granted roles as role@namespace. Roles: viewer, operator, developer, worker, admin. * means all namespaces." flag:"grant" usage:"what the key may do: ROLE@NAMESPACE, with * for all namespaces; may be repeated"`
	ExpiresInSeconds *int64   `json:"expires_in_seconds,omitempty" minimum:"1" maximum:"315360000" doc:"Lifetime of the key. Default: unlimited." flag:"expires-in" usage:"how long the key is valid, such as 12h or 90d (default: for ever)"`
}

// CreatedKey is an API key and its secret.
type CreatedKey struct {
	Key   Key    `json:"key"`
	Token string `json:"token" doc:"Secret for the header Authorization: Bearer. It cannot be retrieved later."`
}

// RotateKey creates a new secret for an API key.
type RotateKey struct {
	GraceSeconds int64 `json:"grace_seconds,omitempty" minimum:"0" maximum:"2592000" doc:"How long the previous secret remains valid."`
}

// Session is a signed-in browser.
type Session struct {
	SessionUUID string    `json:"session_uuid" format:"uuid"`
	Subject     string    `json:"subject" doc:"Subject recorded as the actor."`
	KeyUUID     *string   `json:"key_uuid,omitempty" format:"uuid" doc:"API key used to sign in. Absent: the identity provider."`
	Groups      []string  `json:"groups" doc:"Groups of the subject at the identity provider."`
	CreatedAt   time.Time `json:"created_at"`
	LastUsedAt  time.Time `json:"last_used_at" doc:"Minute precision."`
	EndsAt      time.Time `json:"ends_at" doc:"Extended by use, up to the maximum lifetime."`
}

// SessionList is a page of sessions.
type SessionList struct {
	Sessions   []Session  `json:"sessions"`
	Pagination Pagination `json:"pagination"`
}

// EndSessions selects the sessions to end: one, or all of a subject.
type EndSessions struct {
	SessionUUID string `json:"session_uuid,omitempty" format:"uuid"`
	Subject     string `json:"subject,omitempty" maxLength:"255" doc:"End all sessions of this subject, such as user:ann."`
}

// EndedSessions contains the number of ended sessions.
type EndedSessions struct {
	Ended int `json:"ended" doc:"0 if none was open."`
}
