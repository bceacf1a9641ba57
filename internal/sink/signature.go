package sink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"tasker.example/tasker"
)

// encodedSecret is how a secret begins that is written in base64.
const encodedSecret = "whsec_"

// signers are the secrets of a webhook, the newest first.
type signers [][]byte

// newSigners reads space-separated secrets, plain or base64 after whsec_; two during rotation.
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
			// The cause would show a part of it.
			return nil, tasker.Errorf(tasker.Invalid, "secret %d of the webhook begins with %s, but what follows is not base64", i+1, encodedSecret)
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
