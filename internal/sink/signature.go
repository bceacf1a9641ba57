package sink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"tasker.example/tasker"
)

// encodedSecret is the prefix of secrets that are encoded as base64.
const encodedSecret = "whsec_"

// signers contains the secrets of a webhook, newest first.
type signers [][]byte

// newSigners parses secrets separated by spaces. Each is plain text, or base64 with the prefix
// whsec_. Two secrets are used during a rotation.
func newSigners(secrets string) (signers, error) {
	var all signers
	for i, word := range strings.Fields(secrets) {
		encoded, ok := strings.CutPrefix(word, encodedSecret)
		if !ok {
			all = append(all, []byte(word))
			continue
		}
		secret, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
		if err != nil || len(secret) == 0 {
			// err contains a part of the secret.
			return nil, tasker.Errorf(tasker.Invalid,
				"invalid webhook secret %d: must be base64 after the prefix %s", i+1, encodedSecret)
		}
		all = append(all, secret)
	}
	return all, nil
}

// sign returns the Standard Webhooks signatures over id, time and body.
func (s signers) sign(id, timestamp string, body []byte) string {
	all := make([]string, len(s))
	for i, secret := range s {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}
