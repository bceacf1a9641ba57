CREATE TRIGGER secret_ends_no_later BEFORE UPDATE ON tasker.api_key_secrets
    FOR EACH ROW WHEN (coalesce(NEW.ends_at, 'infinity') > coalesce(OLD.ends_at, 'infinity'))
    EXECUTE FUNCTION tasker.refuse_restored_access('a secret');
