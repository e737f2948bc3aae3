-- Executions whose data was erased: nothing of them is stored any more. Apart from job_log, whose days are dropped.
create table erased_execution (
    execution text collate "C" not null primary key
);
insert into erased_execution select execution from job_log where start_offset = -1;
delete from job_log where start_offset = -1;

-- Counts the requests to erase a subject's copies: an erasure that began before the last one does not answer it.
alter table subject_key add column requests bigint not null default 0;

-- Bytes that uploads of the last day count towards the quotas of their execution and their runner, each at least 4 KiB.
create table upload_charge (
    holder text   collate "C" not null primary key, -- an execution or a runner
    bytes  bigint not null
) with (fillfactor = 50);
insert into upload_charge
select coalesce(execution, runner), sum(greatest(size, 4096)) from blob_upload
 group by grouping sets ((execution), (runner));
