package templatefile

import (
	"tasker"
)

func (v value) environments(g graph) map[string]tasker.Override {
	return nil
}
