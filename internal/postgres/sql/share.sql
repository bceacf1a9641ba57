-- name: trySetting
-- Applies until the end of the statement.
SELECT set_config($1, $2, true);

-- name: currentSetting
SELECT current_setting($1);
