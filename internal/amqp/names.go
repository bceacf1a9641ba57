package amqp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// longestName is how many bytes AMQP gives to the name of a queue, a routing
// key or the id of a message.
const longestName = 255

// QueueOf returns the name of the work queue of a namespace.
func QueueOf(namespace string) string {
	return fitted("worker.", namespace, ".executions")
}

// RoutingKey returns the key under which the messages of a namespace are
// published.
func RoutingKey(namespace string) string {
	return fitted("execution.dispatch.worker.", wildcards.Replace(namespace), "")
}

// wildcards takes from a namespace what a topic exchange would take for a
// pattern: a namespace called # would receive the messages of all.
var wildcards = strings.NewReplacer("%", "%25", "*", "%2A", "#", "%23")

// fitted joins the three. If they are too long, the middle is cut, and what is
// left of it ends with a hash of the whole, so that no two become the same.
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
