//! COPY in both directions.

use std::pin::pin;

use aerostat_types::{Charset, ErrorKind};

use super::{Connection, cancelled};
use crate::{
    api::{BackendSession, CopyFormat, CopyIn, CopyOptions, CopyOut},
    copy::{Decoder, Encoder},
    limits::{READ_BYTES, SMALL_MESSAGE_BYTES_MAX},
    orders::End,
    sqlstate::{Fault, WireError},
    wire::Format,
};

impl<S: BackendSession> Connection<S> {
    /// COPY FROM STDIN. If anything fails, the engine's side is aborted.
    pub(super) async fn copy_in(&mut self, mut copy: CopyIn) -> Result<(), Fault> {
        let format = if copy.options.format == CopyFormat::Binary {
            Format::Binary
        } else {
            Format::Text
        };
        let announced = self.output.copy_response(b'G', copy.columns.len(), format);
        if let Err(error) = announced {
            copy.abort().await;
            return Err(error.into());
        }
        self.flush().await?;
        let charset = self.charset_of(&copy.options);
        let mut decoder = Decoder::new(
            &copy.table,
            &copy.columns,
            &copy.options,
            self.zone(),
            charset,
        );
        match self.receive_copy(&mut copy, &mut decoder).await {
            Ok(()) => {
                let tag = self.signals.engine(pin!(copy.finish())).await?;
                self.notices();
                self.output.command_complete(&tag);
                Ok(())
            }
            Err(fault) => {
                copy.abort().await;
                Err(fault)
            }
        }
    }

    async fn receive_copy(
        &mut self,
        copy: &mut CopyIn,
        decoder: &mut Decoder,
    ) -> Result<(), Fault> {
        loop {
            let (kind, length) = self.signals.header_of_copy().await?;
            if kind == b'd' {
                self.signals.input.take_header();
                self.receive_data(length, copy, decoder).await?;
                continue;
            }
            match kind {
                // A client may have sent Sync or Flush with the Execute that began the COPY.
                b'c' | b'f' | b'H' | b'S' if length <= SMALL_MESSAGE_BYTES_MAX => {}
                b'c' | b'f' | b'H' | b'S' => return Err(Fault::protocol("invalid message length")),
                b'X' => return Err(Fault::Gone),
                _ => {
                    let message =
                        format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                    return Err(Fault::protocol(message));
                }
            }
            self.signals.input.take_header();
            let body = self.signals.input.body(length).await?;
            match kind {
                b'c' => {
                    decoder.end();
                    return self.decode(copy, decoder).await;
                }
                b'f' => {
                    self.decode(copy, decoder).await?;
                    let reason = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(&body))
                        .into_owned();
                    let message = format!("COPY from stdin failed: {reason}");
                    let context = format!("COPY {}", copy.table);
                    return Err(WireError::new(ErrorKind::QueryCanceled, message)
                        .with_context(context)
                        .into());
                }
                _ => {}
            }
        }
    }

    /// Receives a CopyData message of any length, and decodes it piece by piece.
    async fn receive_data(
        &mut self,
        length: usize,
        copy: &mut CopyIn,
        decoder: &mut Decoder,
    ) -> Result<(), Fault> {
        let mut left = length;
        while left > 0 {
            let piece = tokio::select! {
                piece = self.signals.input.piece(&mut left) => piece?,
                () = self.signals.orders.told(End::Killed) => return Err(Fault::Fatal(super::shutting_down())),
            };
            if let Err(error) = decoder.push(&piece) {
                self.signals.input.discard(left).await?;
                return Err(error.into());
            }
            // The rows of small messages that have arrived together are decoded together.
            let more = left == 0 && self.signals.input.comes_next(b'd');
            if more && decoder.undecoded_bytes() < READ_BYTES {
                break;
            }
            if let Err(fault) = self.decode(copy, decoder).await {
                if matches!(fault, Fault::Sql(_)) {
                    // The rest of the message must not be read as the next message.
                    self.signals.input.discard(left).await?;
                }
                return Err(fault);
            }
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn decode(&mut self, copy: &mut CopyIn, decoder: &mut Decoder) -> Result<(), Fault> {
        while let Some(batch) = decoder.next_batch()? {
            self.signals.engine(pin!(copy.write(batch))).await?;
            if self.signals.orders.is_cancelled() {
                return Err(Fault::Sql(cancelled()));
            }
        }
        Ok(())
    }

    /// The character set of the data of a COPY; `None` for the server's own.
    fn charset_of(&self, options: &CopyOptions) -> Option<&'static Charset> {
        match options.encoding {
            Some(encoding) => encoding.charset(),
            None => self.output.charset,
        }
    }

    /// COPY TO STDOUT.
    pub(super) async fn copy_out(&mut self, copy: CopyOut) -> Result<(), Fault> {
        let charset = self.charset_of(&copy.options);
        let mut encoder = Encoder::new(copy.columns.clone(), copy.options, self.zone(), charset);
        self.output
            .copy_response(b'H', copy.columns.len(), encoder.format())?;
        encoder.put_header(&mut self.output)?;
        let mut batches = copy.batches;
        let mut rows = 0;
        while let Some(batch) = self.next_batch(&mut batches).await? {
            let columns = encoder.prepare(&batch)?;
            for row in 0..batch.num_rows() {
                let start = self.output.bytes.len();
                encoder.put_row(&columns, row, &mut self.output)?;
                self.charge_row(start)?;
                self.flush_when_full().await?;
            }
            rows += batch.num_rows();
            if self.signals.orders.is_cancelled() {
                return Err(Fault::Sql(cancelled()));
            }
            tokio::task::yield_now().await;
        }
        encoder.put_end(&mut self.output);
        self.output.bare(b'c');
        self.notices();
        self.output.command_complete(&format!("COPY {rows}"));
        Ok(())
    }
}

impl super::Signals {
    /// The header of the next message while the client sends COPY data.
    async fn header_of_copy(&mut self) -> Result<(u8, usize), Fault> {
        tokio::select! {
            header = self.input.header() => header,
            early = self.orders.early() => Err(self.fault(&early)),
        }
    }
}
