-- From version 1 to 2. A process of version 1 that has the database open goes on: it knows nothing of these columns.
ALTER TABLE instance ADD COLUMN stream TEXT;
ALTER TABLE instance ADD COLUMN initial TEXT;
ALTER TABLE instance ADD COLUMN failing TEXT;
ALTER TABLE checkpoint ADD COLUMN enqueued INTEGER;
