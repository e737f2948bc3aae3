,
 ok as (
   select not exists (select 1 from stale) and not exists (select 1 from known)
      and not exists (select 1 from moved_consumer) and not exists (select 1 from moved_session) as yes),
 -- the head moves only if all guards hold and it is where we think
 head as (
   update log_head h set position = $22, chain = $23, recorded_at = $6, commit_no = h.commit_no + 1
     from ok where ok.yes and h.position = $17 and h.commit_no = $18
      and h.turn = $19 and h.epoch = $20 and h.layout = $21
   returning h.commit_no),
 event as (
   insert into log_event (position, event_id, aggregate_type, aggregate_id, sequence, event_type,
          event_version, payload, metadata, salt, leaf, chain, commit_no, recorded_at)
   select u.position, u.event_id, u.kind, u.id, u.sequence, u.event_type, u.event_version,
          u.payload::json, u.metadata::json, u.salt, u.leaf, u.chain, head.commit_no, $6
     from head, unnest($30::bigint[], $31::uuid[], $32::text[], $33::text[], $34::bigint[], $35::text[],
          $36::text[], $37::text[], $38::text[], $39::bytea[], $40::bytea[], $41::bytea[])
       as u(position, event_id, kind, id, sequence, event_type, event_version, payload, metadata, salt,
            leaf, chain)),
 stream as (
   insert into log_stream as s (aggregate_type, aggregate_id, version, prev_version, last_position)
   select u.kind, u.id, u.version, 0, u.last_position
     from head, unnest($42::text[], $43::text[], $44::bigint[], $45::bigint[])
       as u(kind, id, version, last_position)
   on conflict (aggregate_type, aggregate_id) do update
      set prev_version = s.version, version = excluded.version, last_position = excluded.last_position),
 command as (
   insert into log_command (principal, idempotency_key, request_hash, first_position, last_position,
          answer, expires_at)
   select u.principal, u.key, u.request_hash, u.first, u.last, u.answer::json, $24
     from head, unnest($4::text[], $5::text[], $25::bytea[], $26::bigint[], $27::bigint[], $28::text[])
       as u(principal, key, request_hash, first, last, answer)
   on conflict (principal, idempotency_key) do update
      set request_hash = excluded.request_hash, first_position = excluded.first_position,
          last_position = excluded.last_position, answer = excluded.answer,
          expires_at = excluded.expires_at),
 consumer as (
   update log_consumer c set position = u.target
     from head, unnest($7::text[], $8::integer[], $9::integer[], $29::bigint[])
       as u(name, version, shard, target)
    where c.name = u.name and c.version = u.version and c.shard = u.shard),
 node as (
   insert into log_node (level, index, hash)
   select u.level, u.index, u.hash
     from head, unnest($46::integer[], $47::bigint[], $48::bytea[]) as u(level, index, hash))
