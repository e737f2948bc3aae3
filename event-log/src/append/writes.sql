,
 ok as (
   select not exists (select 1 from stale) and not exists (select 1 from known)
      and not exists (select 1 from moved_consumer) and not exists (select 1 from moved_session) as yes),
 -- the head moves only if all guards hold and it is where we think
 head as (
   update log_head h set position = $20, chain = $21, recorded_at = $6, commit_no = h.commit_no + 1
     from ok where ok.yes and h.position = $15 and h.commit_no = $16
      and h.turn = $17 and h.epoch = $18 and h.layout = $19
   returning h.commit_no),
 event as (
   insert into log_event (position, event_id, aggregate_type, aggregate_id, sequence, event_type,
          event_version, payload, metadata, salt, leaf, chain, commit_no, recorded_at)
   select u.position, u.event_id, u.kind, u.id, u.sequence, u.event_type, u.event_version,
          u.payload::json, u.metadata::json, u.salt, u.leaf, u.chain, head.commit_no, $6
     from head, unnest($28::bigint[], $29::uuid[], $30::text[], $31::text[], $32::bigint[], $33::text[],
          $34::text[], $35::text[], $36::text[], $37::bytea[], $38::bytea[], $39::bytea[])
       as u(position, event_id, kind, id, sequence, event_type, event_version, payload, metadata, salt,
            leaf, chain)),
 stream as (
   insert into log_stream as s (aggregate_type, aggregate_id, version, prev_version, last_position)
   select u.kind, u.id, u.version, 0, u.last_position
     from head, unnest($40::text[], $41::text[], $42::bigint[], $43::bigint[])
       as u(kind, id, version, last_position)
   on conflict (aggregate_type, aggregate_id) do update
      set prev_version = s.version, version = excluded.version, last_position = excluded.last_position),
 command as (
   insert into log_command (principal, idempotency_key, request_hash, first_position, last_position,
          answer, expires_at)
   select u.principal, u.key, u.request_hash, u.first, u.last, u.answer::json, $22
     from head, unnest($4::text[], $5::text[], $23::bytea[], $24::bigint[], $25::bigint[], $26::text[])
       as u(principal, key, request_hash, first, last, answer)
   on conflict (principal, idempotency_key) do update
      set request_hash = excluded.request_hash, first_position = excluded.first_position,
          last_position = excluded.last_position, answer = excluded.answer,
          expires_at = excluded.expires_at),
 consumer as (
   update log_consumer c set position = u.target
     from head, unnest($7::text[], $8::integer[], $9::integer[], $27::bigint[])
       as u(name, version, shard, target)
    where c.name = u.name and c.version = u.version and c.shard = u.shard),
 node as (
   insert into log_node (level, index, hash)
   select u.level, u.index, u.hash
     from head, unnest($44::integer[], $45::bigint[], $46::bytea[]) as u(level, index, hash))
