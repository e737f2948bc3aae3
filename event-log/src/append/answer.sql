select /* moved */ as moved,
       (select json_agg(json_build_array(kind, id, version)) from stale)::text as stale,
       (select json_agg(json_build_object('principal', principal, 'key', idempotency_key,
          'request_hash', encode(request_hash, 'hex'), 'first', first_position,
          'last', last_position, 'answer', answer))
          from (select * from known union all select * from probed) as used)::text as known,
       (select json_agg(json_build_array(name, version, shard)) from moved_consumer)::text as consumers,
       (select json_agg(runner) from moved_session)::text as sessions
