package access

import (
	"crypto/rand"
	"crypto/sha256"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
)

// Key is an API key.
type Key struct {
	UUID       tasker.ID
	Name       string
	Grants     []string // in the form of [ParseGrant]
	Prefixes   []string // of its valid tokens, newest first
	CreatedBy  string
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: never
	LastUsedAt *time.Time // to the minute
	RevokedAt  *time.Time
	RevokedBy  *string
}

// Session is the session of a browser.
type Session struct {
	UUID      tasker.ID
	Subject   string
	KeyUUID   *tasker.ID // the key used to sign in; nil: the identity provider
	Groups    []string   // from the identity provider
	CreatedAt time.Time
	SeenAt    time.Time // to the minute
	EndsAt    time.Time // unless it is used before
}

// KeySubject returns the subject of a key.
func KeySubject(keyName string) string { return "key:" + keyName }

// Token is the secret of a key. It is shown once.
type Token struct {
	Text   string
	Prefix string   // stored, for lookups
	Digest [32]byte // stored
}

const tokenMark = "tsk_"

// tokenForm matches tokens: a mark that secret scanners can find, ten characters of the prefix,
// and 130 random bits.
var tokenForm = regexp.MustCompile(`^tsk_[a-z2-7]{10}_[A-Z2-7]{26}$`)

// NewToken returns a new random token.
func NewToken() Token {
	t, _ := ParseToken(tokenMark + strings.ToLower(rand.Text()[:10]) + "_" + rand.Text())
	return t
}

// ParseToken parses a token and reports whether it is well-formed.
func ParseToken(text string) (Token, bool) {
	if !tokenForm.MatchString(text) {
		return Token{}, false
	}
	return Token{Text: text, Prefix: text[:len(tokenMark)+10], Digest: sha256.Sum256([]byte(text))}, true
}

// IsToken reports whether text looks like a token or the beginning of one.
func IsToken(text string) bool { return strings.HasPrefix(text, tokenMark) }

// linkTokenForm matches the tokens of answer links: a mark and 130 random bits.
var linkTokenForm = regexp.MustCompile(`^tsl_[A-Z2-7]{26}$`)

// NewLinkToken returns a new random token for an answer link. It has no prefix.
func NewLinkToken() Token {
	t, _ := ParseLinkToken("tsl_" + rand.Text())
	return t
}

// ParseLinkToken parses the token of an answer link and reports whether it is well-formed.
func ParseLinkToken(text string) (Token, bool) {
	if !linkTokenForm.MatchString(text) {
		return Token{}, false
	}
	return Token{Text: text, Digest: sha256.Sum256([]byte(text))}, true
}

// MaxKeyName is the maximum length of a key's name, in characters.
const MaxKeyName = 100

// CheckKeyName returns an Invalid error if the name of a key is invalid.
func CheckKeyName(name string) error {
	if name == "" || utf8.RuneCountInString(name) > MaxKeyName || sanitizeSubject(name) != name ||
		!utf8.ValidString(name) {
		return tasker.Errorf(tasker.Invalid, "invalid name %q: must be 1 to %d characters long, without spaces, "+
			"parentheses or percent signs", truncate(name), MaxKeyName)
	}
	return nil
}
