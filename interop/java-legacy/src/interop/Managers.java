package interop;

import com.microsoft.azure.eventprocessorhost.BaseLease;
import com.microsoft.azure.eventprocessorhost.Checkpoint;
import com.microsoft.azure.eventprocessorhost.CompleteLease;
import com.microsoft.azure.eventprocessorhost.ICheckpointManager;
import com.microsoft.azure.eventprocessorhost.ILeaseManager;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Leases and checkpoints of a user's own making: a table that the hosts of one process share, with one view of it for each host. */
final class Managers implements ILeaseManager, ICheckpointManager {
    /** What all hosts share. */
    static final class Table {
        private final Map<String, Row> rows = new HashMap<>();
        private boolean exists;
    }

    private static final class Row {
        String owner;
        long epoch;
        long expires;
        Checkpoint checkpoint;

        boolean isOwned() {
            return owner != null && System.nanoTime() < expires;
        }
    }

    private static final int LEASE_MS = 15_000;
    private final Table table;
    private final String host;

    Managers(Table table, String host) {
        this.table = table;
        this.host = host;
    }

    private static <T> CompletableFuture<T> done(T value) {
        return CompletableFuture.completedFuture(value);
    }

    private Row row(String partition) {
        return table.rows.get(partition);
    }

    private static long expiry() {
        return System.nanoTime() + LEASE_MS * 1_000_000L;
    }

    private boolean isMine(CompleteLease lease) {
        Row row = row(lease.getPartitionId());
        return row != null && row.isOwned() && host.equals(row.owner) && row.epoch == lease.getEpoch();
    }

    // ---- leases ------------------------------------------------------------------------------------------------------

    @Override
    public int getLeaseDurationInMilliseconds() {
        return LEASE_MS;
    }

    @Override
    public CompletableFuture<Boolean> leaseStoreExists() {
        synchronized (table) {
            return done(table.exists);
        }
    }

    @Override
    public CompletableFuture<Void> createLeaseStoreIfNotExists() {
        synchronized (table) {
            table.exists = true;
            return done(null);
        }
    }

    @Override
    public CompletableFuture<Void> deleteLeaseStore() {
        synchronized (table) {
            table.rows.clear();
            table.exists = false;
            return done(null);
        }
    }

    @Override
    public CompletableFuture<CompleteLease> getLease(String partition) {
        synchronized (table) {
            Row row = row(partition);
            CompleteLease lease = new CompleteLease(partition);
            lease.setOwner(row.owner);
            lease.setIsOwned(row.isOwned());
            lease.setEpoch(row.epoch);
            return done(lease);
        }
    }

    @Override
    public CompletableFuture<List<BaseLease>> getAllLeases() {
        synchronized (table) {
            List<BaseLease> leases = new ArrayList<>();
            table.rows.forEach((partition, row) -> leases.add(new BaseLease(partition, row.owner, row.isOwned())));
            return done(leases);
        }
    }

    @Override
    public CompletableFuture<Void> createAllLeasesIfNotExists(List<String> partitions) {
        synchronized (table) {
            partitions.forEach(partition -> table.rows.computeIfAbsent(partition, absent -> new Row()));
            return done(null);
        }
    }

    @Override
    public CompletableFuture<Void> deleteLease(CompleteLease lease) {
        synchronized (table) {
            table.rows.remove(lease.getPartitionId());
            return done(null);
        }
    }

    @Override
    public CompletableFuture<Boolean> acquireLease(CompleteLease lease) {
        synchronized (table) {
            Row row = row(lease.getPartitionId());
            row.owner = host;
            row.epoch++;
            row.expires = expiry();
            lease.setOwner(host);
            lease.setIsOwned(true);
            lease.setEpoch(row.epoch);
            return done(true);
        }
    }

    @Override
    public CompletableFuture<Boolean> renewLease(CompleteLease lease) {
        synchronized (table) {
            boolean isMine = isMine(lease);
            if (isMine) {
                row(lease.getPartitionId()).expires = expiry();
            }
            return done(isMine);
        }
    }

    @Override
    public CompletableFuture<Void> releaseLease(CompleteLease lease) {
        synchronized (table) {
            if (isMine(lease)) {
                row(lease.getPartitionId()).owner = null;
            }
            return done(null);
        }
    }

    @Override
    public CompletableFuture<Boolean> updateLease(CompleteLease lease) {
        return renewLease(lease);
    }

    // ---- checkpoints ---------------------------------------------------------------------------------------------------

    @Override
    public CompletableFuture<Boolean> checkpointStoreExists() {
        return leaseStoreExists();
    }

    @Override
    public CompletableFuture<Void> createCheckpointStoreIfNotExists() {
        return createLeaseStoreIfNotExists();
    }

    @Override
    public CompletableFuture<Void> deleteCheckpointStore() {
        return deleteLeaseStore();
    }

    @Override
    public CompletableFuture<Checkpoint> getCheckpoint(String partition) {
        synchronized (table) {
            Checkpoint known = row(partition).checkpoint;
            return done(known == null ? null : new Checkpoint(known));
        }
    }

    @Override
    public CompletableFuture<Void> createAllCheckpointsIfNotExists(List<String> partitions) {
        return createAllLeasesIfNotExists(partitions);
    }

    @Override
    public CompletableFuture<Void> updateCheckpoint(CompleteLease lease, Checkpoint checkpoint) {
        synchronized (table) {
            if (!isMine(lease)) {
                return CompletableFuture.failedFuture(new IllegalStateException("the lease of " + lease.getPartitionId() + " is lost"));
            }
            row(lease.getPartitionId()).checkpoint = new Checkpoint(checkpoint);
            return done(null);
        }
    }

    @Override
    public CompletableFuture<Void> deleteCheckpoint(String partition) {
        synchronized (table) {
            row(partition).checkpoint = null;
            return done(null);
        }
    }
}
