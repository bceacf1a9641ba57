package templatefile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"tasker"
)

// Checksum returns the SHA-256 of the meaning of a template, in hex.
func Checksum(t tasker.Template) string {
	raw, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	var doc any
	_ = json.Unmarshal(raw, &doc)
	raw, _ = json.Marshal(doc)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
