package amqp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// maxName is the limit of AMQP for names, keys and ids, in bytes.
const maxName = 255

// QueueName returns the name of the work queue of a namespace.
func QueueName(namespace string) string {
	return fitName("worker.", namespace, ".executions")
}

// RoutingKey returns the routing key of a namespace.
func RoutingKey(namespace string) string {
	return fitName("execution.dispatch.worker.", wildcards.Replace(namespace), "")
}

// wildcards escapes the wildcards of topic exchanges: a namespace named # would receive all
// messages.
var wildcards = strings.NewReplacer("%", "%25", "*", "%2A", "#", "%23")

// fitName joins its arguments to a name of at most maxName bytes. It truncates middle if necessary
// and appends a hash of it.
func fitName(before, middle, after string) string {
	if len(before)+len(middle)+len(after) <= maxName {
		return before + middle + after
	}
	sum := sha256.Sum256([]byte(middle))
	mark := "~" + hex.EncodeToString(sum[:12])
	end := maxName - len(before) - len(mark) - len(after)
	for end > 0 && !utf8.RuneStart(middle[end]) {
		end--
	}
	return before + middle[:end] + mark + after
}
