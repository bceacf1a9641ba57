package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/postgres"
)

// HasProvider reports whether browsers can sign in at an identity provider.
func (a *Authenticator) HasProvider() bool {
	return a != nil && a.Provider != nil && a.Provider.PublicURL != ""
}

// newRandomText returns 192 random bits.
func newRandomText() string {
	var b [sessionBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// StartSignIn starts a sign-in at the identity provider that is valid for ten minutes. The browser
// must store secret in a cookie and go to address. back is the page to return to.
func (a *Authenticator) StartSignIn(ctx context.Context, back string) (address, secret string, err error) {
	config, err := a.Provider.OAuth(ctx)
	if err != nil {
		return "", "", err
	}
	secret = newRandomText()
	s := postgres.SignIn{Digest: sha256.Sum256([]byte(secret)), State: newRandomText(), Nonce: newRandomText(), Verifier: oauth2.GenerateVerifier(), Back: back}
	if err := a.DB.AddSignIn(ctx, s); err != nil {
		return "", "", err
	}
	return config.AuthCodeURL(s.State, oidc.Nonce(s.Nonce), oauth2.S256ChallengeOption(s.Verifier)), secret, nil
}

// FinishSignIn finishes a sign-in and returns the secret of the new session and the page to return
// to. A sign-in can be finished only once. The error is Unauthorized, Forbidden or Unavailable.
func (a *Authenticator) FinishSignIn(ctx context.Context, secret string, answer url.Values, from string) (session, back string, err error) {
	digest := sha256.Sum256([]byte(secret))
	if err := a.admitLookup(ctx, func(ctx context.Context) bool { return a.recognizesDigest(ctx, digest) }); err != nil {
		return "", "", err
	}
	s, err := a.DB.TakeSignIn(ctx, digest)
	if err != nil {
		return "", "", err
	}
	if s == nil || subtle.ConstantTimeCompare([]byte(s.State), []byte(answer.Get("state"))) != 1 {
		return "", "", tasker.Errorf(tasker.Unauthorized, "sign-in expired or already used: sign in again")
	}
	if refused := answer.Get("error"); refused != "" {
		return "", "", tasker.Errorf(tasker.Unauthorized, "the identity provider rejected the sign-in: %s", truncate(refused))
	}
	config, err := a.Provider.OAuth(ctx)
	if err != nil {
		return "", "", err
	}
	limited, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, a.Provider.HTTP), idp.AnswerTime)
	defer cancel()
	token, err := config.Exchange(limited, answer.Get("code"), oauth2.VerifierOption(s.Verifier))
	if err != nil {
		return "", "", &tasker.Error{Code: tasker.Unauthorized, Message: "the identity provider did not confirm the sign-in: sign in again", Err: err}
	}
	raw, _ := token.Extra("id_token").(string)
	who, err := a.Provider.Verify(ctx, raw, a.Provider.ClientID)
	if err != nil {
		return "", "", err
	}
	if subtle.ConstantTimeCompare([]byte(who.Nonce), []byte(s.Nonce)) != 1 {
		return "", "", tasker.Errorf(tasker.Unauthorized, "the token belongs to another sign-in: sign in again")
	}
	subject := access.NewIdentity(who.Subject, nil).Subject
	if len(a.Bindings.Grants(who.Groups)) == 0 {
		return "", "", tasker.Errorf(tasker.Forbidden, "%s has no permissions: none of their groups has a role", subject)
	}
	session, err = a.beginSession(ctx, postgres.NewSession{Subject: subject, Groups: who.Groups, From: from})
	return session, s.Back, err
}

// truncate truncates input that is quoted in an error.
func truncate(text string) string {
	const most = 100
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
