with
 -- where the commands expect streams to be; no row is version 0
 want as (select * from unnest($1::text[], $2::text[], $3::bigint[]) as u(kind, id, expected)),
 stale as (
   select distinct w.kind, w.id, coalesce(s.version, 0) as version from want w
     left join log_stream s on s.aggregate_type = w.kind and s.aggregate_id = w.id
    where coalesce(s.version, 0) <> w.expected),
 -- idempotency keys must be absent; an expired one is
 known as (
   select c.* from unnest($4::text[], $5::text[]) as u(principal, key)
     join log_command c on c.principal = u.principal and c.idempotency_key = u.key
    where c.expires_at > $6::timestamptz),
 -- consumers must be where the policy thinks, and its own
 held_consumer as (
   select c.name, c.version, c.shard, c.position, c.owner_epoch from log_consumer c
    where c.name = any($7::text[]) order by c.name, c.version, c.shard /* lock */),
 moved_consumer as (
   select u.name, u.version, u.shard
     from unnest($7::text[], $8::integer[], $9::integer[], $10::bigint[], $11::bigint[])
       as u(name, version, shard, expected, owner_epoch)
     left join held_consumer h on h.name = u.name and h.version = u.version and h.shard = u.shard
    where h.position is distinct from u.expected or h.owner_epoch is distinct from u.owner_epoch),
 -- sessions must be this server's
 held_session as (
   select r.runner, r.server, r.server_epoch from runner_session r
    where r.runner = any($12::text[]) order by r.runner /* lock */),
 moved_session as (
   select u.runner from unnest($12::text[], $13::text[], $14::bigint[]) as u(runner, server, server_epoch)
     left join held_session h on h.runner = u.runner
    where h.server is distinct from u.server or h.server_epoch is distinct from u.server_epoch),
 -- keys of commands that are known to come too late: only asked for, they keep nobody out
 probed as (
   select c.* from unnest($15::text[], $16::text[]) as u(principal, key)
     join log_command c on c.principal = u.principal and c.idempotency_key = u.key
    where c.expires_at > $6::timestamptz)
