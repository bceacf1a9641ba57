package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
)

// RetireTemplate retires a version of a template or reactivates it. It returns the template, or
// NotFound.
func (db *DB) RetireTemplate(ctx context.Context, v tasker.TemplateVersion, retired bool, by Operator) (t tasker.StoredTemplate, err error) {
	if v.Version == "" {
		return t, tasker.Errorf(tasker.Invalid, "version: is missing")
	}
	err = db.InTx(ctx, func(tx *Tx) error {
		var tag pgconn.CommandTag
		action := "template.unretired"
		if retired {
			action = "template.retired"
			tag, err = tx.Exec(ctx, statement("retireTemplate"), v.Namespace, v.Name, v.Version, by.Actor, by.Reason)
		} else {
			tag, err = tx.Exec(ctx, statement("unretireTemplate"), v.Namespace, v.Name, v.Version)
		}
		if err != nil {
			return fmt.Errorf("retire a template: %w", err)
		}
		if t, err = tx.Template(ctx, v.Namespace, v.Name, v.Version); err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if !retired { // its queues may have been removed
			if err := tx.orderQueues(ctx, t.Template); err != nil {
				return err
			}
		}
		data, err := json.Marshal(map[string]string{"reason": by.Reason})
		if err != nil {
			return fmt.Errorf("audit a template: %w", err)
		}
		return tx.auditText(ctx, by.Actor, action, v.Namespace+"/"+v.Name+" "+v.Version, data)
	})
	return t, err
}
