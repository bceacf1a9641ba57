package postgres

import "context"

// LeaseKey returns the secret that signs lease tokens. All servers that use the database share it.
func (db *DB) LeaseKey(ctx context.Context) (secret []byte, err error) {
	err = retry(ctx, func() error {
		return db.pool.QueryRow(ctx, statement("leaseKey")).Scan(&secret)
	})
	return secret, wrapError(err, "read the key of lease tokens")
}
