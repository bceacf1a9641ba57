package amqp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// longestName is the limit of AMQP for names, keys and ids, in bytes.
const longestName = 255

// QueueOf returns the name of the work queue of a namespace.
func QueueOf(namespace string) string {
	return fitted("worker.", namespace, ".executions")
}

// RoutingKey returns the routing key of a namespace.
func RoutingKey(namespace string) string {
	return fitted("execution.dispatch.worker.", wildcards.Replace(namespace), "")
}

// wildcards takes from a namespace what a topic exchange would take for a
// pattern: a namespace called # would receive the messages of all.
var wildcards = strings.NewReplacer("%", "%25", "*", "%2A", "#", "%23")

// fitted joins the three; a middle that is too long is cut and ends with a hash.
func fitted(before, middle, after string) string {
	if len(before)+len(middle)+len(after) <= longestName {
		return before + middle + after
	}
	sum := sha256.Sum256([]byte(middle))
	mark := "~" + hex.EncodeToString(sum[:12])
	end := longestName - len(before) - len(mark) - len(after)
	for end > 0 && !utf8.RuneStart(middle[end]) {
		end--
	}
	return before + middle[:end] + mark + after
}
